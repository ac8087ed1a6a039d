package host

import (
	"bytes"
	"testing"

	"pgregory.net/rapid"
)

func TestWrittenEtcdDataIsRead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := EtcdData{rapid.Uint64().Draw(t, "cluster"), rapid.Uint64().Draw(t, "member")}
		got, err := decodeEtcdData(bytes.NewReader(AppendEtcdData(nil, want)))
		if err != nil || got != want {
			t.Fatalf("%v, %v, want %v", got, err, want)
		}
	})
}

// The log of etcd is untrusted input, and must not make the agent panic.
func FuzzEtcdData(f *testing.F) {
	f.Add(AppendEtcdData(nil, EtcdData{1, 2}))
	f.Add(bytes.Repeat([]byte{0xff}, 64))
	f.Fuzz(func(_ *testing.T, b []byte) { _, _ = decodeEtcdData(bytes.NewReader(b)) })
}
