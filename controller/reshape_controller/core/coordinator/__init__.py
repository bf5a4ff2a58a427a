"""The GPU Coordinator: how GPUs pass from job to job, rules R1 to R9."""
