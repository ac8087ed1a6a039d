package main

import (
	"strings"
	"testing"
)

func TestBenchmarkValuesAreReadAndComparedWithTheirMarks(t *testing.T) {
	found := map[string]float64{}
	parseBenchmarks("goos: linux\nBenchmarkConnections/nftables/10-2 \t 1\t 2050375758 ns/op\t 4550 conn/s\t 74.00 "+
		"first-us\nBenchmarkMemory \t 1\t 5 ns/op\t 8.5 anon-MiB\nPASS\n", found)
	if found["Connections/nftables/10 conn/s"] != 4550 || found["Connections/nftables/10 first-us"] != 74 ||
		found["Memory anon-MiB"] != 8.5 {
		t.Errorf("read %v", found)
	}
	b := &bench{runs: 3}
	for _, v := range []float64{3, 1, 2} {
		b.add(figure{work: "cost", unit: "s", mark: 2.5}, v)
		b.add(figure{work: "rate", unit: "per second", mark: 2.5, isMinimum: true}, v)
		b.add(figure{work: "size", unit: "MiB"}, v)
	}
	text := b.report()
	for _, want := range []string{"| cost | s |  | < 2.5 | 2 | 1 to 3 | met |", "| rate | per second |  | ≥ 2.5 | 2 " +
		"| 1 to 3 | **missed** |", "| size | MiB |  |  | 2 | 1 to 3 |  |", proxyMethod} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, text)
		}
	}
}
