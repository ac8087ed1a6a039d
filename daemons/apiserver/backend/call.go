package backend

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"mime"
	"net"
	"net/http"
	"net/url"
	"path"
	"strings"
	"time"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// maxResponse is the maximum size of a webhook's response, in bytes.
const maxResponse = 16 << 20

// Webhook is the address of a webhook.
type Webhook struct {
	Target Target
	URL    *url.URL
}

// NewWebhook parses the client configuration of a webhook. The path is cleaned, as upstream's client does.
func NewWebhook(c admissionregistrationv1.WebhookClientConfig) (Webhook, error) {
	w := Webhook{Target: Target{CABundle: c.CABundle}}
	if s := c.Service; s != nil {
		w.Target.Namespace, w.Target.Service, w.Target.Port = s.Namespace, s.Name, 443
		if s.Port != nil {
			w.Target.Port = *s.Port
		}
		w.URL = &url.URL{Scheme: "https", Host: w.Target.Name(), Path: "/"}
		if s.Path != nil {
			w.URL.Path = path.Join("/", *s.Path)
		}
		return w, nil
	}
	if c.URL == nil {
		return w, errors.New("neither a service nor a URL is given")
	}
	var err error
	if w.URL, err = url.Parse(*c.URL); err != nil {
		return w, fmt.Errorf("read the URL: %w", err)
	}
	w.URL.Path, w.URL.RawPath = path.Join("/", w.URL.Path), ""
	if w.Target.Host = w.URL.Host; w.URL.Port() == "" {
		w.Target.Host = net.JoinHostPort(w.URL.Hostname(), "443")
	}
	return w, nil
}

// Call posts a document and decodes the response. within is the timeout, which is also sent to the webhook.
func (r *Connector) Call(ctx context.Context, w Webhook, within time.Duration, in, out any) error {
	data, err := json.Marshal(in)
	if err != nil {
		return fmt.Errorf("encode what is sent: %w", err)
	}
	transport, err := r.OwnTransport(w.Target)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	to := *w.URL
	query := to.Query()
	query.Set("timeout", within.String())
	to.RawQuery = query.Encode()
	q, err := http.NewRequestWithContext(ctx, http.MethodPost, to.String(), bytes.NewReader(data))
	if err != nil {
		return err
	}
	q.Header.Set("Content-Type", "application/json")
	q.Header.Set("Accept", "application/json")
	q.Header.Set("User-Agent", "kube-apiserver-admission")
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	answer, err := client.Do(q)
	if err != nil {
		return err
	}
	defer func() { _ = answer.Body.Close() }() // everything needed has been read
	// When the request times out, the webhook may still end its response. That response is empty and must not be used.
	if err := ctx.Err(); err != nil {
		return &url.Error{Op: "Post", URL: to.String(), Err: err}
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, maxResponse+1))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer: %w", err)
	case answer.StatusCode < 200 || answer.StatusCode > 299:
		return responseError(answer, body)
	case len(body) > maxResponse:
		return fmt.Errorf("the answer is larger than %d bytes", maxResponse)
	}
	if len(body) == 0 {
		return fmt.Errorf("0-length response with status code: %d and content type: %s", answer.StatusCode,
			answer.Header.Get("Content-Type"))
	}
	if err := json.Unmarshal(body, out); err != nil {
		return fmt.Errorf("couldn't get version/kind; json parse error: %w", err)
	}
	return nil
}

// responseError returns the error for an unsuccessful response, as upstream's clients do. It uses a Status unchanged,
// and text with its status code. Other content is ignored.
func responseError(answer *http.Response, body []byte) error {
	const maximum = 2048
	text := "unknown"
	switch kind, _, _ := mime.ParseMediaType(answer.Header.Get("Content-Type")); {
	case kind == "application/json":
		status := &metav1.Status{}
		if json.Unmarshal(body, status) == nil && status.Kind == "Status" && status.Status != metav1.StatusSuccess {
			return apierrors.FromObject(status)
		}
	case kind == "" || strings.HasPrefix(kind, "text/"):
		text = strings.TrimSpace(string(body[:min(len(body), maximum)]))
	}
	return apierrors.NewGenericServerResponse(answer.StatusCode, http.MethodPost, schema.GroupResource{}, "", text, 0,
		true)
}
