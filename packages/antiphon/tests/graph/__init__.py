"""Tests of the LangGraph nodes, against the real LangGraph."""
