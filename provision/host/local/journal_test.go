package local

import (
	"strings"
	"testing"
)

// The error of a crashed unit contains the reason, which precedes the stack traces at the end of its journal.
func TestCrashReasonsAreShownWithoutStacks(t *testing.T) {
	stack := "\n\ngoroutine 1 [running]:\n" + strings.Repeat("main.f()\n\t/main.go:1 +0x1\n", 20)
	for name, c := range map[string]struct{ message, want string }{
		"no crash": {"1\n2\n3\n4\n5\n6\n7\n8\n9\n10\n", "3\n4\n5\n6\n7\n8\n9\n10"},
		"short":    {"address in use\n", "address in use"},
		"panic":    {"listening\npanic: no room" + stack, "listening\npanic: no room"},
		"of the runtime": {"GOMEMLIMIT=plenty\nfatal error: malformed GOMEMLIMIT\n\nruntime " +
			"stack:\nruntime.throw()\n", "GOMEMLIMIT=plenty\nfatal error: malformed GOMEMLIMIT"},
		"the last of two": {"panic: first" + stack + "started again\npanic: second [recovered]\n\tpanic: third" + stack,
			"started again\npanic: second [recovered]\n\tpanic: third"},
		"ends with it": {"panic: cut", "panic: cut"},
	} {
		got := crashReason(c.message)
		if !strings.HasSuffix(got, c.want) || strings.Contains(got, "+0x") && name != "the last of two" {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
		if n := strings.Count(got, "\n") + 1; n > maxJournalLines {
			t.Errorf("%s: %d lines", name, n)
		}
	}
}
