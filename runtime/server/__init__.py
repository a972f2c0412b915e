"""The HTTP server: OpenAI's, SGLang's, Anthropic's and Ollama's APIs over one client. See docs/server.md."""
