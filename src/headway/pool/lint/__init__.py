"""Checks before submit, of a job and of existing submit files.

`preflight` checks a job.toml against a pool; `case` holds the job for its checks.
`risks` checks a submit file: `submit_file` reads it, `evaluate` fills in its macros and rows,
`queue_view` answers the questions of the checks, and `submit_paths` looks for the files.
Both look for `script_traps` in the job's scripts. `wrap` adds Headway's lines to a submit file.
"""
