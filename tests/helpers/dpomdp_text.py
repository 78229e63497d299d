"""A small .dpomdp file with every kind of line but rewards."""

HEADER = """
agents: 2
discount: 1
values: reward
states: good bad
start: good
actions:
go stay
2
observations:
1
dark light
"""
BODY = """
T: * :
identity
T: go * : good :
0.25 0.75
O: * :
uniform
O: stay 1 : bad : 0 light : 1
O: stay 1 : bad : 0 dark : 0
"""
