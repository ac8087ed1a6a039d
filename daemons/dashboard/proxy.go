package dashboard

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
)

// proxyPrefix is the path below which requests are forwarded to the API server.
const proxyPrefix = "/k8s"

// maxBody limits the body of a forwarded request, like the API server's own limit.
const maxBody = 3 << 20

// proxyTimeout limits a forwarded request that is not a stream.
const proxyTimeout = time.Minute

// forwardedHeaders are the headers of a browser that are forwarded. Others could carry credentials of another user,
// such as Authorization, Cookie and Impersonate-User.
var forwardedHeaders = []string{"Accept", "Content-Type", "Content-Length", "Connection", "Upgrade",
	"Sec-Websocket-Key", "Sec-Websocket-Version", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol"}

// answeredHeaders are the headers of the API server that are passed to the browser.
var answeredHeaders = []string{"Audit-Id", "Content-Length", "Content-Type", "Connection", "Date", "Retry-After",
	"Sec-Websocket-Accept", "Sec-Websocket-Extensions", "Sec-Websocket-Protocol", "Upgrade", "Warning"}

// answeredTypes are the media types that are passed to the browser. Others, such as HTML, could run as a script with
// the rights of the page.
var answeredTypes = []string{"application/json", "application/yaml", "text/plain"}

// tokenProtocol is the prefix of a WebSocket protocol that carries a token.
const tokenProtocol = "base64url.bearer."

// proxy forwards a request to the API server with the credentials of the visitor.
func (d *Dashboard) proxy(w http.ResponseWriter, r *http.Request) {
	path := strings.TrimPrefix(r.URL.Path, proxyPrefix)
	if err := checkProxyPath(path); err != nil {
		writeError(w, err)
		return
	}
	if r.ContentLength > maxBody {
		writeError(w, apierrors.NewRequestEntityTooLargeError(fmt.Sprintf("at most %d bytes", maxBody)))
		return
	}
	ctx := r.Context()
	if !isStream(r) {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, proxyTimeout)
		defer cancel()
	}
	v := sessionOf(r).visitor
	r = r.WithContext(ctx)
	r.Body = http.MaxBytesReader(w, r.Body, maxBody)
	(&httputil.ReverseProxy{
		Rewrite: func(q *httputil.ProxyRequest) {
			q.Out.URL = &url.URL{Scheme: v.server.Scheme, Host: v.server.Host, RawQuery: q.In.URL.RawQuery,
				Path: strings.TrimSuffix(v.server.Path, "/") + path}
			q.Out.Host = v.server.Host
			setForwardedHeaders(q.Out.Header)
		},
		Transport:     v.client.Transport,
		FlushInterval: -1,
		ModifyResponse: func(answer *http.Response) error {
			setAnsweredHeaders(answer.Header)
			return nil
		},
		ErrorHandler: func(w http.ResponseWriter, r *http.Request, err error) {
			if r.Context().Err() == nil {
				d.config.Log.Debug("forward a request", "method", r.Method, "path", path, "err", err)
			}
			writeError(w, err)
		},
	}).ServeHTTP(w, r)
}

// checkProxyPath refuses paths that are not part of the Kubernetes API, and those whose answers come from programs of
// users: a page of such a program would have the rights of the dashboard's pages.
func checkProxyPath(path string) error {
	parts := strings.Split(strings.TrimPrefix(path, "/"), "/")
	for i, part := range parts {
		if part == "." || part == ".." || part == "" && i < len(parts)-1 || strings.ContainsAny(part, "\\\x00") {
			return apierrors.NewBadRequest(fmt.Sprintf("the path %q is not valid", path))
		}
	}
	if !slices.Contains([]string{"api", "apis", "version", "openapi", "readyz"}, parts[0]) {
		return errForbidden(fmt.Sprintf("the path %q is not part of the Kubernetes API", path))
	}
	if parts[0] != "api" {
		return nil
	}
	// /api/v1/namespaces/NAMESPACE/pods/NAME/proxy, and /api/v1/nodes/NAME/proxy
	for _, at := range []int{4, 6} {
		if len(parts) > at && parts[at] == "proxy" {
			return errForbidden("the dashboard does not forward requests to pods, services and nodes")
		}
	}
	if len(parts) > 2 && (parts[2] == "proxy") {
		return errForbidden("the dashboard does not forward requests to pods, services and nodes")
	}
	return nil
}

// isStream reports whether the answer to a request may take as long as the visitor wants: a watch, a log that is
// followed, or an upgraded connection.
func isStream(r *http.Request) bool {
	if isUpgrade(r) {
		return true
	}
	query := r.URL.Query()
	for _, name := range []string{"watch", "follow"} {
		if on, err := strconv.ParseBool(query.Get(name)); err == nil && on {
			return true
		}
	}
	return false
}

func setForwardedHeaders(h http.Header) {
	for name := range h {
		if !slices.Contains(forwardedHeaders, name) {
			delete(h, name)
		}
	}
	h.Set("User-Agent", userAgent)
	var offered []string
	for _, line := range h.Values("Sec-Websocket-Protocol") {
		for protocol := range strings.SplitSeq(line, ",") {
			if p := strings.TrimSpace(protocol); !strings.HasPrefix(strings.ToLower(p), tokenProtocol) {
				offered = append(offered, p)
			}
		}
	}
	h.Del("Sec-Websocket-Protocol")
	if len(offered) > 0 {
		h.Set("Sec-Websocket-Protocol", strings.Join(offered, ", "))
	}
}

func setAnsweredHeaders(h http.Header) {
	for name := range h {
		if !slices.Contains(answeredHeaders, name) {
			delete(h, name)
		}
	}
	kind, _, _ := strings.Cut(h.Get("Content-Type"), ";")
	if kind = strings.ToLower(strings.TrimSpace(kind)); kind != "" && !slices.Contains(answeredTypes, kind) {
		h.Set("Content-Type", "application/octet-stream")
	}
}
