"""Profiles that moesim ships, each made by ``moesim calibrate --recipe NAME``, never by hand."""
