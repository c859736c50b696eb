// Everything begins.

drawParallel();
drawImportance();
beginCurves();
