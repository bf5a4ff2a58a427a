"""The GPU Coordinator, which passes GPUs from job to job by the rules R1 to R9."""
