"""Checks before submit: of a job, and of submit files that people have already.

`preflight` checks a job.toml against a pool; `case` holds the job while it does.
`risks` checks a submit file: `submit_file` reads it, `evaluate` works out its macros and rows,
`queue_view` answers the checks' questions, and `submit_paths` looks for the files that it names.
Both look for `script_traps` in the job's scripts. `wrap` adds Headway's lines to a submit file.
"""
