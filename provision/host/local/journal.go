package local

import (
	"context"
	"os/exec"
	"slices"
	"strings"
)

// shownOfJournal is how many lines of a unit's journal an error has. More are read, since a crash's stack is long.
const shownOfJournal = 8

// journal is the end of what a unit wrote, or where that is the stack of a crash, what stands above it.
func journal(ctx context.Context, match ...string) string {
	args := append([]string{"--no-pager", "-q", "-o", "cat", "-n", "400"}, match...)
	out, err := exec.CommandContext(ctx, "journalctl", args...).Output()
	if err != nil {
		return ""
	}
	return lastWords(string(out))
}

// lastWords chooses the lines that say why a program ended. A program in Go that crashes writes its reason first and
// then the stacks of its goroutines, which fill the journal's end and say nothing to an operator.
func lastWords(text string) string {
	lines := strings.Split(strings.TrimSpace(text), "\n")
	end := len(lines)
	for i := end - 1; i >= 0; i-- {
		if crash(lines[i]) {
			stack := slices.IndexFunc(lines[i:], func(line string) bool {
				return line == "" || line == "runtime stack:" || strings.HasPrefix(line, "goroutine ")
			})
			if stack > 0 {
				end = i + stack
			}
			break
		}
	}
	return strings.Join(lines[max(0, end-shownOfJournal):end], "\n")
}

func crash(line string) bool {
	return strings.HasPrefix(line, "panic: ") || strings.HasPrefix(line, "fatal error: ") ||
		strings.HasPrefix(line, "unexpected fault address")
}
