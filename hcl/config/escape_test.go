package config_test

import (
	"testing"

	"clusterctl/hcl/config"
)

func TestTerminalCommandsAreEscaped(t *testing.T) {
	for text, want := range map[string]string{
		"äöü → 漢字 ✓":           "äöü → 漢字 ✓",
		"a\tb\nc":              "a\tb\nc",
		"\x1b[2J\r\x07":        `\x1b[2J\x0d\x07`,
		"\u009b2J\x7f":         `\x9b2J\x7f`,
		"a\u202eb\u2028\u2066": `a\u202eb\u2028\u2066`,
	} {
		if got := config.EscapeControls(text); got != want {
			t.Errorf("%q is shown as %q, not %q", text, got, want)
		}
	}
	if got := config.EscapeLine("a\nPlan: b\x1b"); got != `a\nPlan: b\x1b` {
		t.Errorf("one line is %q", got)
	}
	if got := config.EscapeIndented("a\nPlan: b\x1b\n", "  "); got != "a\n  Plan: b"+`\x1b` {
		t.Errorf("indented it is %q", got)
	}
}
