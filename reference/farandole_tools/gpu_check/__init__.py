"""One command for a machine with cards: every GPU test, the doctor, trainings by every way to the card, and a record.

    make gpu-check                                             in the checkout
    python -m farandole_tools.gpu_check --folder gpu-check     the same

`plan` lists what is run, `execution` runs it, and `report` writes the record, a file to attach to an issue.
"""
