"""Several hosts on this one machine, with a real network of a chosen speed between them (Linux, as root).

``network`` makes and removes them; `farandole.runtime.placement` has a launch put its ranks on them.
"""
