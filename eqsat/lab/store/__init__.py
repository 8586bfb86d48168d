"""The store of experiments: one SQLite file and a folder per run; nothing is lost or done twice."""
