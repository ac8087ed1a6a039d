package conformance

import (
	"bytes"
	"reflect"
	"testing"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
)

const (
	protobufType = "application/vnd.kubernetes.protobuf"
	cborType     = "application/cbor"
)

// testEncodings sends an object and reads it in each encoding, with the same content.
func testEncodings(t *testing.T, s *subject) {
	o, path := s.createObject(t)
	inCBOR := s.mustAnswer(t, 200, get("%s", path).withAccept(cborType))
	var read object
	if err := direct.Unmarshal(inCBOR.raw, &read); err != nil || inCBOR.header.Get("Content-Type") != cborType {
		t.Fatalf("CBOR of %q: %v", inCBOR.header.Get("Content-Type"), err)
	}
	if !bytes.HasPrefix(inCBOR.raw, []byte{0xd9, 0xd9, 0xf7}) {
		t.Errorf("CBOR begins with %x, not with its self-described tag", inCBOR.raw[:3])
	}
	if !reflect.DeepEqual(cloneText(string(encode(read))), o) {
		t.Errorf("CBOR says\n%v\nJSON\n%v", read, o)
	}
	next, nextPath := s.newObject()
	sent, err := direct.Marshal(next)
	if err != nil {
		t.Fatal(err)
	}
	s.mustAnswer(t, 201, call{method: "POST", path: s.collection(), body: sent, contentType: cborType})
	if got := s.mustAnswer(t, 200, get("%s", nextPath)); next["spec"] != nil &&
		!isSubset(next["spec"], got.valueAt("spec")) {
		t.Errorf("sent in CBOR %v, got %v", next, got.obj)
	}
	s.mustRefuse(t, call{method: "POST", path: s.collection(), body: []byte("{"), contentType: cborType}, 400,
		"BadRequest", "")

	if s.group() == "apiextensions.k8s.io" || s.group() == "apiregistration.k8s.io" {
		return // their types have a protobuf form that clients do not use
	}
	a := s.mustAnswer(t, 200, get("%s", path).withAccept(protobufType))
	if !bytes.HasPrefix(a.raw, []byte("k8s\x00")) || a.header.Get("Content-Type") != protobufType {
		t.Fatalf("protobuf begins with %q", a.raw[:min(4, len(a.raw))])
	}
	var unknown runtime.Unknown
	if err := unknown.Unmarshal(a.raw[4:]); err != nil || unknown.Kind != s.Kind || unknown.APIVersion != s.Version {
		t.Errorf("the envelope says %s %s (%v)", unknown.APIVersion, unknown.Kind, err)
	}
	// What was read can be written unchanged.
	same := s.mustAnswer(t, 200, call{method: "PUT", path: path, body: a.raw, contentType: protobufType})
	if !reflect.DeepEqual(same.obj, o) {
		t.Errorf("written from protobuf\n%v\nwas\n%v", same.obj, o)
	}
	s.mustRefuse(t, call{method: "POST", path: s.collection(), body: []byte("none"), contentType: protobufType}, 400,
		"BadRequest", "")
	s.mustRefuse(t,
		call{method: "POST", path: s.collection(), body: []byte("k8s\x00\xff\xff"), contentType: protobufType}, 400,
		"BadRequest", "")
}
