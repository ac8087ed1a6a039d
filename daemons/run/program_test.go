package run

import (
	"bufio"
	"slices"
	"strings"
	"testing"
)

func TestOnlyUnmodifiedPagesAreReleased(t *testing.T) {
	const maps = `00400000-02050000 r-xp 00000000 fe:01 42                         /opt/a program
Rss:               20000 kB
Anonymous:             0 kB
02050000-03fd0000 r--p 01c50000 fe:01 42                         /opt/a program
Anonymous:             4 kB
VmFlags: rd mr mw me sd
03fd0000-040b8000 rw-p 03bd0000 fe:01 42                         /opt/a program
Anonymous:             0 kB
05000000-05001000 r--p 00000000 fe:01 43                         /lib/other
Anonymous:             0 kB
06000000-06001000 r--p 00000000 fe:01 42                         /opt/a program
Anonymous:             0 kB
c000000000-c000400000 rw-p 00000000 00:00 0
Anonymous:             8 kB
`
	want := []mapping{{0x400000, 0x2050000}, {0x6000000, 0x6001000}}
	if got := unmodifiedMappings(bufio.NewScanner(strings.NewReader(maps)), "/opt/a program"); !slices.Equal(got,
		want) {
		t.Errorf("%x, want %x", got, want)
	}
}

func TestProgramsContinueAfterTheirPagesAreReleased(t *testing.T) {
	if len(programMappings()) == 0 {
		t.Fatal("the program is mapped nowhere")
	}
	releaseProgram()
	if got := strings.Repeat("a", 3); got != "aaa" {
		t.Error(got)
	}
}
