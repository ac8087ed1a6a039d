package agent

import (
	"bytes"
	"context"
	"io"
	"testing"

	"clusterctl/provision/host/hostfake"
)

// FuzzServe sends arbitrary bytes to an agent. The agent ends without other effects.
func FuzzServe(f *testing.F) {
	begin := func(kind byte, payload string) []byte {
		var b bytes.Buffer
		if err := writeFrame(&b, kind, []byte(payload)); err != nil {
			f.Fatal(err)
		}
		return b.Bytes()
	}
	f.Add(begin(frameRequest, `{"op":"facts"}`))
	f.Add(begin(frameRequest, `{"op":"check"}"file"{"path":"/a","mode":420}`))
	f.Add(append(begin(frameRequest, `{"op":"send","name":"/x","digest":"00"}`), begin(frameData, "x")...))
	f.Add([]byte{frameRequest, 0xff, 0xff, 0xff, 0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		if err := Serve(context.Background(), &hostfake.Host{}, bytes.NewReader(data), io.Discard); err != nil {
			t.Logf("ended: %v", err)
		}
	})
}
