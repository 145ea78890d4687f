"""Text in and out: `chat` makes a conversation ids, `tokenizer` makes the vocabulary, `answer` reads and scores."""
