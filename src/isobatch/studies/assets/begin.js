// Everything begins.

beginCurves();
beginScores();
beginGaps();
