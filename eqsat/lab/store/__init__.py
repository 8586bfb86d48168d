"""What experiments found: one SQLite file and a folder per run; nothing is lost or done twice."""
