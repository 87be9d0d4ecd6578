"""bench/report: reads results and writes every table, sentence and page of bench/."""
