"""`sapwood bench serve URL`: what a server feels like to its users, alone or beside another."""
