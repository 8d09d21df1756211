// A stream of the fake runtime: the time that its work has taken so far, which nobody waits for.
#pragma once

struct FakeStream {
    double us = 0;
};
