package stream

import (
	"context"
	"io"
	"runtime"
	"strings"
	"testing"

	"k8s.io/client-go/tools/remotecommand"
)

// An endless terminal size from a client is not buffered.
// Proves S12.
func TestLongTerminalSizesAreRejected(t *testing.T) {
	z := &sizeQueue{ctx: context.Background(), sizes: make(chan remotecommand.TerminalSize, 1)}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	z.read(io.MultiReader(strings.NewReader(`{"Width":80,"Height":24}{"Width":"`), io.LimitReader(endlessReader{}, 64<<20)))
	runtime.ReadMemStats(&after)
	if size := <-z.sizes; size.Width != 80 || size.Height != 24 {
		t.Errorf("the size is %v", size)
	}
	if spent := after.TotalAlloc - before.TotalAlloc; spent > 8<<20 {
		t.Errorf("64 MiB took %d MiB", spent>>20)
	}
}

type endlessReader struct{}

func (endlessReader) Read(p []byte) (int, error) {
	for i := range p {
		p[i] = 'a'
	}
	return len(p), nil
}
