package main

import (
	"path/filepath"
	"strings"
	"testing"
	"time"

	"clusterctl/tests/lab/cluster"
)

// All parts complete a measurement. The amounts are too small to show performance.
func TestAllPartsMeasure(t *testing.T) {
	bin, err := cluster.Bundle()
	if err != nil {
		t.Fatal(err)
	}
	b := &bench{bin: bin, sources: 3, objects: 20, releases: 3, interval: 10 * time.Second}
	if err := b.measure(t.Context(), filepath.Join(t.TempDir(), "document.md"), ""); err != nil {
		t.Fatal(err)
	}
	if len(b.figures) != 20 {
		t.Errorf("%d figures", len(b.figures))
	}
	for _, f := range b.figures {
		switch {
		case f.unit == "writes" && f.hasMark && f.value != f.mark:
			t.Errorf("%s: %v writes, want %v; %s", f.work, f.value, f.mark, f.note)
		case f.unit != "writes" && f.value <= 0:
			t.Errorf("%s: %v %s", f.work, f.value, f.unit)
		}
	}
}

func TestFiguresAreComparedWithTheirMarks(t *testing.T) {
	b := &bench{}
	b.addMarked("cost", "s", 2, 2, "")
	b.addMarked("size", "MiB", 3, 2, "large")
	b.add("amount", "writes", 4, "")
	b.isReduced = true
	b.addMarked("few", "s", 1, 2, "")
	b.addMarked("slow", "s", 3, 2, "")
	text := b.report()
	for _, want := range []string{"| cost | s | ≤ 2 | 2 | met |  |", "| size | MiB | ≤ 2 | 3 | **missed** | large |",
		"| few | s | ≤ 2 | 1 | not comparable |  |", "| slow | s | ≤ 2 | 3 | **missed** |  |",
		"| amount | writes |  | 4 |  |  |"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
