package document

import (
	"strings"
	"testing"
)

func TestFormatWrapsProseAndMovesLongCells(t *testing.T) {
	words := strings.TrimSpace(strings.Repeat("word ", 50))
	text := "# Title\n\n- " + words + "\n\n| a | b |\n|---|---|\n| short | " + words + " |\n| x | y |\n\n" +
		"```\n" + words + "\n```\n"
	got := Format(text)
	for _, want := range []string{
		"\n  word ", // an item continues under its text
		"| short | note 1 |\n| x | y |\n\n1. word word",
		"```\n" + words + "\n```\n",
	} {
		if !strings.Contains(got, want) {
			t.Errorf("the document lacks %q:\n%s", want, got)
		}
	}
	if again := Format(got); again != got {
		t.Errorf("formatted twice, it is\n%s\nnot\n%s", again, got)
	}
}
