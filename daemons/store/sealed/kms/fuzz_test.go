package kms

import (
	"bytes"
	"context"
	"testing"

	"google.golang.org/protobuf/proto"
)

// FuzzStored decodes arbitrary stored values. Accepted values must be within the API's limits, and only values that
// were written can be decrypted.
func FuzzStored(f *testing.F) {
	own, err := newSeed()
	if err != nil {
		f.Fatal(err)
	}
	w := &storedObject{
		KeyID:                  "one",
		EncryptedDEKSource:     []byte("wrapped"),
		Annotations:            map[string][]byte{"a.example.com": []byte("b")},
		EncryptedDEKSourceType: seedType,
	}
	where, plain := []byte("/registry/secrets/a/b"), []byte(`{"kind":"Secret"}`)
	data, err := own.encrypt(where, plain)
	if err != nil {
		f.Fatal(err)
	}
	good, err := encodeStored(w, data)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	for _, o := range []*storedObject{
		{KeyID: "one", EncryptedDEKSource: []byte("wrapped"), EncryptedData: []byte("short"),
			EncryptedDEKSourceType: seedType},
		{KeyID: "one", EncryptedDEKSource: []byte("wrapped"), EncryptedData: []byte("short")},
		{EncryptedDEKSourceType: 9},
	} {
		text, err := proto.Marshal(o)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	whole, err := seedOf(&storedObject{EncryptedDEKSourceType: keyType}, make([]byte, 32))
	if err != nil {
		f.Fatal(err)
	}
	p := &Plugin{config: Config{Now: (&testClock{}).now}, current: &writeKey{seed: own, wrapped: w}}
	f.Fuzz(func(t *testing.T, text []byte) {
		p.Stale(text)
		got, data, err := decodeStored(text)
		if err != nil {
			return
		}
		if len(data) == 0 || checkWrapped(got) != nil {
			t.Errorf("taken: %v", got)
		}
		if opened, err := whole.decrypt(where, data); err == nil {
			t.Errorf("a key that wrote nothing opens %q", opened)
		}
		again, err := encodeStored(got, data)
		if err != nil {
			t.Fatal(err)
		}
		back, same, err := decodeStored(again)
		if err != nil || !bytes.Equal(same, data) || seedID(back) != seedID(got) {
			t.Errorf("written again it is another: %v, %v", back, err)
		}
		p.seeds.addOwn(got, own)
		if opened, err := p.Open(context.Background(), where, text); err == nil && !bytes.Equal(opened, plain) {
			t.Errorf("opened as %q", opened)
		}
	})
}
