package local

import (
	"context"
	"os/exec"
	"slices"
	"strings"
)

// maxJournalLines is the number of journal lines in an error. More lines are read, because the stack of a crash is
// long.
const maxJournalLines = 8

// journalTail returns the last lines that a unit wrote, or the lines above the stack if they are the stack of a crash.
func journalTail(ctx context.Context, match ...string) string {
	args := append([]string{"--no-pager", "-q", "-o", "cat", "-n", "400"}, match...)
	out, err := exec.CommandContext(ctx, "journalctl", args...).Output()
	if err != nil {
		return ""
	}
	return crashReason(string(out))
}

// crashReason returns the lines that contain the reason why a program ended. A Go program that crashes writes its
// reason first, and then the stacks of its goroutines. The stacks fill the end of the journal and do not help an
// operator.
func crashReason(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	end := len(lines)
	for i := end - 1; i >= 0; i-- {
		if isCrashLine(lines[i]) {
			stack := slices.IndexFunc(lines[i:], func(line string) bool {
				return line == "" || line == "runtime stack:" || strings.HasPrefix(line, "goroutine ")
			})
			if stack > 0 {
				end = i + stack
			}
			break
		}
	}
	return strings.Join(lines[max(0, end-maxJournalLines):end], "\n")
}

func isCrashLine(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") ||
		strings.HasPrefix(line, "unexpected fault address")
}
