// Everything begins.

beginAverages();
beginCurves();
beginScores();
beginBars("gaps");
beginBars("pairs");
