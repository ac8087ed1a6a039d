package aggregate

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"clusterctl/daemons/api"
	"clusterctl/daemons/api/header"
	"clusterctl/daemons/apiserver/request"
)

// proxyToAggregated forwards a request to the server that serves its group version, with the user in headers.
func (s *Aggregator) proxyToAggregated(q *request.Request, a *Version) error {
	if a.UnavailableReason != "" {
		return apierrors.NewServiceUnavailable("the server is currently unable to handle the request: " +
			a.UnavailableReason)
	}
	transport, err := s.config.Backends.Transport(a.target, q.HTTP.Header.Get("Upgrade") != "")
	if err != nil {
		return apierrors.NewServiceUnavailable(err.Error())
	}
	proxy := &httputil.ReverseProxy{
		Transport: transport, FlushInterval: -1,
		Rewrite: func(r *httputil.ProxyRequest) {
			r.Out.URL = &url.URL{
				Scheme:   "https",
				Host:     a.target.Name(),
				Path:     q.HTTP.URL.Path,
				RawPath:  q.HTTP.URL.RawPath,
				RawQuery: q.HTTP.URL.RawQuery,
			}
			r.Out.Host = a.target.Name()
			r.SetXForwarded()
			header.RemoveHTTP2Upgrade(r.Out.Header)
			setUserHeaders(r.Out.Header, q.User)
		},
		ModifyResponse: func(r *http.Response) error {
			// When the request times out, the server may still end its response. That response is empty and must not be
			// used.
			if err := q.HTTP.Context().Err(); err != nil {
				return err
			}
			if r.StatusCode == http.StatusSwitchingProtocols {
				q.Answer.BecomeStream()
			}
			return nil
		},
		ErrorHandler: func(_ http.ResponseWriter, _ *http.Request, err error) {
			if errors.Is(context.Cause(q.HTTP.Context()), context.DeadlineExceeded) {
				q.WriteError(s.config.Log, context.DeadlineExceeded)
			} else if q.HTTP.Context().Err() == nil {
				q.WriteError(s.config.Log, apierrors.NewServiceUnavailable(
					fmt.Sprintf("error trying to reach service: %v", err)))
			}
		},
	}
	proxy.ServeHTTP(q.Answer, q.HTTP)
	return nil
}

// setUserHeaders sets the headers that name the user. Credentials and identity headers that the client sent are
// removed.
func setUserHeaders(h http.Header, u api.User) {
	h.Del("Authorization")
	for name := range h {
		if strings.HasPrefix(name, "X-Remote-") || strings.HasPrefix(name, "Impersonate-") {
			h.Del(name)
		}
	}
	h.Set("X-Remote-User", u.Name)
	if u.UID != "" {
		h.Set("X-Remote-Uid", u.UID)
	}
	for _, group := range u.Groups {
		h.Add("X-Remote-Group", group)
	}
	for key, values := range u.Extra {
		for _, value := range values {
			h.Add("X-Remote-Extra-"+url.PathEscape(key), value)
		}
	}
}
