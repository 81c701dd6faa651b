"""The fixed texts of the task suite. A changed word here makes runs incomparable with earlier ones."""

from __future__ import annotations

from kvtui.probes.results import TaskFamily

PLANTED = "The number of the ferry pass is 5926."

RAW: dict[TaskFamily, str] = {
    "retrieval": "The number of the ferry pass is",
    "code-edit": """\
# Task: adults are 18 and over.
def is_adult(age):
    return age > 18
# Fixed:
def is_adult(age):
    return age >= 18
###
# Task: the store is full when used reaches size.
def is_full(used, size):
    return used > size
# Fixed:
def is_full(used, size):
    return used >= size
###
# Task: freight is heavy from 30 kg and long from 200 cm.
def is_freight(weight, length):
    return weight > 30 or length > 200
# Fixed:
""",
    "tool-selection": """\
Tools:
get_weather(city): weather in a city
set_timer(minutes): start a timer
send_message(to, text): send a text message

Request: What is the weather in Oslo?
Call: {"tool": "get_weather", "arguments": {"city": "Oslo"}}

Request: Tell Mia that dinner is ready.
Call: {"tool": "send_message", "arguments": {"to": "Mia", "text": "dinner is ready"}}

Request: Set a timer for 10 minutes.
Call: {"tool": "set_timer", "arguments": {"minutes": 10}}

Request: Set a timer for 25 minutes.
Call:""",
    "long-instruction": """\
Rules: write the items as a list, one a line, in the order given. Each line starts with its number and a capital
and ends with " - ok". Leave nothing out. Add nothing. The last line is OVER.

Items: salt, flour, oil, tea
1. Salt - ok
2. Flour - ok
3. Oil - ok
4. Tea - ok
OVER

Items: rope, lamp, tent, map
1. Rope - ok
2. Lamp - ok
3. Tent - ok
4. Map - ok
OVER

Items: copper, glass, wool, paper
""",
}

CHAT: dict[TaskFamily, str] = {
    "retrieval": "According to the records above, what is the number of the ferry pass? Answer with the number alone.",
    "code-edit": """\
Leave the records aside. Freight is heavy from 30 kg and long from 200 cm. This function is wrong at its limits:

def is_freight(weight, length):
    return weight > 30 or length > 200

Reply with the corrected function alone, in full, without explanation.""",
    "tool-selection": """\
Leave the records aside. These tools exist:
get_weather(city): weather in a city
set_timer(minutes): start a timer, minutes is a number
send_message(to, text): send a text message

Reply with one JSON object and nothing else, of the form {"tool": "...", "arguments": {...}}.
Request: Set a timer for 25 minutes.""",
    "long-instruction": """\
Leave the records aside. Write these items as a list: copper, glass, wool, paper.
Rules: one item a line, in the order given. Each line starts with its number and a full stop, then the item with
a capital, and ends with " - ok". Leave nothing out and add nothing. No blank lines. After the items comes one last
line that holds the word OVER alone.""",
}
