package apiserver

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"clusterctl/daemons/api"
	"clusterctl/daemons/apiserver/backend"
)

// documents are the OpenAPI documents with which another server describes a group version.
type documents struct {
	v2     []byte // OpenAPI v2 of the whole server; nil if it has none
	etag   string // of v2
	v3     string // URL of the group version's OpenAPI v3 document; empty if it has none
	looked time.Time
}

func (d documents) same(other documents) bool { return d.v3 == other.v3 && bytes.Equal(d.v2, other.v2) }

// describeEvery is the minimum time between two fetches of the documents.
const describeEvery = time.Minute

// describe fetches a server's OpenAPI documents. A server without documents, or one that does not answer, is served all
// the same.
func (s *Server) describe(ctx context.Context, a *aggregated, gv schema.GroupVersion) {
	now := s.o.Now()
	if !a.documents.looked.IsZero() && now.Sub(a.documents.looked) < describeEvery {
		return
	}
	a.documents.looked = now
	data, etag, err := s.readFrom(ctx, a.target, "/openapi/v2", a.documents.etag)
	switch {
	case errors.Is(err, errUnchanged):
	case err != nil:
		s.log.Debug("an aggregated server describes nothing", "version", gv, "err", err)
		a.documents.v2, a.documents.etag = nil, ""
	default:
		a.documents.v2, a.documents.etag = data, etag
	}
	a.documents.v3 = ""
	if data, _, err = s.readFrom(ctx, a.target, "/openapi/v3", ""); err != nil {
		return
	}
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if json.Unmarshal(data, &index) == nil {
		a.documents.v3 = index.Paths["apis/"+gv.String()].ServerRelativeURL
	}
}

// errUnchanged reports that a document still has the ETag that was sent.
var errUnchanged = errors.New("the document has not changed")

// readFrom reads a document of another server, with the aggregator's own identity. It returns errUnchanged if the
// document still has the given ETag.
func (s *Server) readFrom(
	ctx context.Context,
	target backend.Target,
	path, etag string,
) (data []byte, newEtag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, checkTimeout)
	defer cancel()
	transport, err := s.reach.Own(target)
	if err != nil {
		return nil, "", err
	}
	q, err := http.NewRequestWithContext(ctx, http.MethodGet, "https://"+target.Name()+path, nil)
	if err != nil {
		return nil, "", err
	}
	q.Header.Set("Accept", "application/json")
	if etag != "" {
		q.Header.Set("If-None-Match", etag)
	}
	speakFor(q.Header, api.User{Name: "system:kube-aggregator", Groups: []string{api.GroupMasters}})
	answer, err := (&http.Client{Transport: transport}).Do(q)
	if err != nil {
		return nil, "", err
	}
	defer func() { _ = answer.Body.Close() }() // everything needed has been read
	switch answer.StatusCode {
	case http.StatusOK:
	case http.StatusNotModified:
		return nil, etag, errUnchanged
	default:
		return nil, "", fmt.Errorf("bad status from %s: %d", q.URL, answer.StatusCode)
	}
	data, err = io.ReadAll(io.LimitReader(answer.Body, maxDocument+1))
	if err == nil && len(data) > maxDocument {
		err = fmt.Errorf("the document %s is larger than %d bytes", q.URL, maxDocument)
	}
	return data, answer.Header.Get("ETag"), err
}
