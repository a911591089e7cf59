"""The process and its operating system: signals, sd_notify, subprocesses, the instance lock and atomic files."""
