package wire

import (
	"net/http"
	"net/url"
	"strings"
	"testing"
)

// A client gets the available media type that it prefers. If it accepts none, the error lists those that are available.
// Proves S11.
func TestPreferredMediaTypeIsChosen(t *testing.T) {
	const protobuf = "application/vnd.kubernetes.protobuf"
	for accept, want := range map[string]string{
		"":                                    "application/json",
		"application/cbor":                    "application/cbor",
		"application/json;q=0.1, " + protobuf: protobuf,
		protobuf + ";q=0.3,application/yaml;q=0.5,application/json;q=0.4": "application/yaml",
		"*/*, application/yaml":                                          "application/yaml",
		"text/html, application/*;q=0.5":                                 "application/json",
		"application/*,application/cbor":                                 "application/cbor",
		protobuf + ",application/json":                                   protobuf,
		"application/json;as=Table;v=v1;g=meta.k8s.io, application/json": "application/json Table",
		"application/json;as=Table;v=v9;g=meta.k8s.io,application/json":  "application/json",
		"application/json;q=x,application/yaml":                          "application/yaml",
		"text/html": "406 application/json, application/yaml, " +
			protobuf + ", application/cbor",
		"application/cbor-seq": "406 application/json, application/yaml, " + protobuf + ", application/cbor",
	} {
		m, err := Negotiate(&http.Request{Header: http.Header{"Accept": {accept}}, URL: &url.URL{Path: "/api/v1/pods"}},
			true, true)
		got := strings.TrimSpace(m.ContentType() + " " + m.Shape)
		if err != nil {
			got = strings.Replace(err.Error(), "only the following media types are accepted:", "406", 1)
		}
		if got != want {
			t.Errorf("Accept: %s\n got %s\nwant %s", accept, got, want)
		}
	}
	m, err := Negotiate(
		&http.Request{Header: http.Header{"Accept": {protobuf + ", text/html"}}, URL: &url.URL{Path: "/api/v1/pods"}},
		false,
		true,
	)
	if err == nil || strings.Contains(err.Error(), protobuf) {
		t.Errorf("what has no protobuf is sent as %s: %v", m.ContentType(), err)
	}
	for format, streamed := range map[Format]bool{JSON: true, Protobuf: true, CBOR: true, YAML: false} {
		if err := (Media{Format: format}).CheckStreamable(); (err == nil) != streamed {
			t.Errorf("%s as a stream: %v", contentTypes[format], err)
		}
	}
}

func TestResponsesForPeopleAreIndented(t *testing.T) {
	for _, c := range []struct {
		agent, query, accept string
		want                 bool
	}{
		{agent: "curl/8.0", want: true}, {agent: "Wget/1.2", want: true}, {agent: "Mozilla/5.0 (X11)", want: true},
		{agent: "kubectl/v1.37"}, {agent: ""},
		{agent: "curl/8.0", query: "pretty=false"}, {agent: "curl/8.0", query: "pretty=x"},
		{agent: "curl/8.0", query: "pretty=", want: true},
		{query: "pretty=True", want: true}, {query: "limit=1&pretty=t", want: true}, {query: "pretty=2"},
		{query: "labelSelector=pretty"},
		{accept: "application/json;pretty=1", want: true}, {accept: "application/json;pretty=true"},
		{accept: "text/html;pretty=1,application/json"},
	} {
		r := &http.Request{
			Header: http.Header{"Accept": {c.accept}, "User-Agent": {c.agent}},
			URL:    &url.URL{Path: "/api/v1/pods", RawQuery: c.query},
		}
		if m, err := Negotiate(r, true, true); err != nil || m.Pretty != c.want {
			t.Errorf("%+v: %v, %v", c, m.Pretty, err)
		}
	}
}
