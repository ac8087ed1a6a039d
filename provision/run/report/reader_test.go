package report_test

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"clusterctl/provision/run/report"
)

func TestSentFilesReportProgress(t *testing.T) {
	now := time.Unix(1_700_000_000, 0)
	var reported []int64
	s := &report.Reader{
		ReadCloser: io.NopCloser(strings.NewReader(strings.Repeat("x", 100))),
		Machine:    "machine.a", Name: "kubelet", Size: 100,
		Report: func(e report.Event) {
			if e.Kind != report.Sending || e.Machine != "machine.a" || e.Message != "kubelet" || e.Size != 100 {
				t.Errorf("event %+v", e)
			}
			reported = append(reported, e.Bytes)
		},
		Now: func() time.Time { now = now.Add(time.Second); return now },
	}
	for buf := make([]byte, 10); ; {
		if _, err := s.Read(buf); err == io.EOF {
			break
		} else if err != nil {
			t.Fatal(err)
		}
	}
	if want := []int64{50, 100}; !slices.Equal(reported, want) {
		t.Errorf("reported %v, want %v", reported, want)
	}
	file := filepath.Join(t.TempDir(), "f")
	if err := os.WriteFile(file, []byte("four"), 0o600); err != nil {
		t.Fatal(err)
	}
	open, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = open.Close() }()
	if got := report.CompressedSize(open); got != 4 {
		t.Errorf("CompressedSize is %d, want 4", got)
	}
}
