"""Finding mistakes: gradient checks, anomalies, watched training runs and diagnoses."""
