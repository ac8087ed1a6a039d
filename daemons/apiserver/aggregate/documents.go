package aggregate

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

// Documents are the OpenAPI documents with which another server describes a group version.
type Documents struct {
	V2        []byte // OpenAPI v2 of the whole server; nil if it has none
	etag      string // of V2
	V3        string // URL of the group version's OpenAPI v3 document; empty if it has none
	fetchedAt time.Time
}

func (d Documents) equal(other Documents) bool {
	return d.V3 == other.V3 && bytes.Equal(d.V2, other.V2)
}

// describeInterval is the minimum time between two fetches of the documents.
const describeInterval = time.Minute

// fetchDocuments fetches a server's OpenAPI documents. A server without documents, or one that does not answer, is
// served all the same.
func (s *Aggregator) fetchDocuments(ctx context.Context, a *Version, gv schema.GroupVersion) {
	now := s.config.Now()
	if !a.Documents.fetchedAt.IsZero() && now.Sub(a.Documents.fetchedAt) < describeInterval {
		return
	}
	a.Documents.fetchedAt = now
	data, etag, err := s.fetchDocument(ctx, a.target, "/openapi/v2", a.Documents.etag)
	switch {
	case errors.Is(err, errUnchanged):
	case err != nil:
		s.config.Log.Debug("an aggregated server describes nothing", "version", gv, "err", err)
		a.Documents.V2, a.Documents.etag = nil, ""
	default:
		a.Documents.V2, a.Documents.etag = data, etag
	}
	a.Documents.V3 = ""
	if data, _, err = s.fetchDocument(ctx, a.target, "/openapi/v3", ""); err != nil {
		return
	}
	var index struct {
		Paths map[string]struct {
			ServerRelativeURL string `json:"serverRelativeURL"`
		} `json:"paths"`
	}
	if json.Unmarshal(data, &index) == nil {
		a.Documents.V3 = index.Paths["apis/"+gv.String()].ServerRelativeURL
	}
}

// errUnchanged reports that a document still has the ETag that was sent.
var errUnchanged = errors.New("the document has not changed")

// fetchDocument reads a document of another server, with the aggregator's own identity. It returns errUnchanged if the
// document still has the given ETag.
func (s *Aggregator) fetchDocument(
	ctx context.Context,
	target backend.Target,
	path, etag string,
) (data []byte, newEtag string, err error) {
	ctx, cancel := context.WithTimeout(ctx, availabilityTimeout)
	defer cancel()
	transport, err := s.config.Backends.OwnTransport(target)
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
	setUserHeaders(q.Header, api.User{Name: "system:kube-aggregator", Groups: []string{api.GroupMasters}})
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
	data, err = io.ReadAll(io.LimitReader(answer.Body, maxDocumentSize+1))
	if err == nil && len(data) > maxDocumentSize {
		err = fmt.Errorf("the document %s is larger than %d bytes", q.URL, maxDocumentSize)
	}
	return data, answer.Header.Get("ETag"), err
}
