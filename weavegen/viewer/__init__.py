"""The viewer: jobs, traces and all candidates in a browser (`weavegen serve`), and reports of jobs."""
