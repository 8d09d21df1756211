"""From measurements to judgement: efficiency of each class, where time goes, what tuning gains."""
