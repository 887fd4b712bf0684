"""The endpoints of the Responses API beside the generation itself: stored responses, conversations, compaction, WebSocket."""
