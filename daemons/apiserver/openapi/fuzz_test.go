package openapi

import (
	"encoding/json"
	"testing"
)

// FuzzElsewhere merges an arbitrary document of another server into this server's. No part of this server's may be
// lost.
func FuzzElsewhere(f *testing.F) {
	for _, text := range []string{
		`{"swagger":"2.0","paths":{"/apis/a.example.com/v1/as":{"get":{"responses":{"200":{"schema":{"$ref":"#/definitions/A"}}}}},"/api/v1/pods":{}},"definitions":{"A":{"properties":{"b":{"$ref":"#/definitions/B"}}},"B":{"$ref":"#/definitions/A"}}}`,
		`{"paths":{"/apis/a.example.com/v1":{"$ref":"#/definitions/Mine"}},"definitions":{"Mine":{"type":"string"}}}`,
		`{"paths":{"/apis/a.example.com/v1":[{"$ref":7},{"$ref":"#/definitions/None"}]},"definitions":null}`,
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		paths, definitions := jsonObject{"/api/v1/pods": "mine"}, jsonObject{"Mine": jsonObject{"type": "object"}}
		err := mergeExternal(paths, definitions, ExternalVersion{Path: "apis/a.example.com/v1", V2: text})
		if paths["/api/v1/pods"] != "mine" || definitions["Mine"].(jsonObject)["type"] != "object" {
			t.Errorf("what is described here has become %v %v (%v)", paths, definitions, err)
		}
		if _, err := json.Marshal(jsonObject{"paths": paths, "definitions": definitions}); err != nil {
			t.Error(err)
		}
	})
}
