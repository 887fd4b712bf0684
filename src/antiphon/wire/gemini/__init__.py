"""Google's Gemini generateContent API: requests, responses, streams and rules."""
