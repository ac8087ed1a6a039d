package fetch

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/go-git/go-git/v5/plumbing/format/pktline"
	"github.com/go-git/go-git/v5/plumbing/protocol/packp"
)

const (
	service      = "git-upload-pack"
	userAgent    = "git/2.50 (clusterctl)" // some servers answer only clients that begin with git/
	maxRedirects = 5
	// headerTimeout limits how long a server may take to begin with its answer.
	headerTimeout = 30 * time.Second
)

// httpSession speaks the smart protocol over http and https.
type httpSession struct {
	base      *url.URL // without credentials
	client    *http.Client
	authorize func(*http.Request)
}

// newHTTP returns a session. Credentials are never sent without TLS.
func newHTTP(direct dialer, at *url.URL, proxy string, credentials map[string][]byte) (*httpSession, error) {
	h := &httpSession{base: at, authorize: func(*http.Request) {}}
	username, password := string(credentials[keyUsername]), string(credentials[keyPassword])
	bearer := strings.TrimSpace(string(credentials[keyBearer]))
	hasCredentials := password != "" || bearer != "" || credentials[keyClientCert] != nil
	switch {
	case hasCredentials && at.Scheme != "https":
		return nil, permanent("credentials are sent over https only; the URL begins with %s", at.Scheme)
	case password != "" && bearer != "":
		return nil, permanent("the Secret has both %s and %s; remove one of them", keyPassword, keyBearer)
	case bearer != "":
		h.authorize = func(r *http.Request) { r.Header.Set("Authorization", "Bearer "+bearer) }
	case password != "":
		if username == "" {
			username = "git" // servers ignore the name beside a token
		}
		h.authorize = func(r *http.Request) { r.SetBasicAuth(username, strings.TrimRight(password, "\r\n")) }
	}
	var err error
	h.client, err = newClient(direct, proxy, credentials, func(r *http.Request, first *url.URL) error {
		if hasCredentials && r.URL.Host != first.Host {
			return fmt.Errorf("the server redirects to %s, which must not receive the credentials of %s; write the "+
				"new "+
				"address into the source", r.URL.Host, first.Host)
		}
		return nil
	})
	return h, err
}

// newClient returns a client. It follows redirects of GET requests that allow accepts, and none from https to http.
func newClient(direct dialer, proxy string, credentials map[string][]byte,
	allow func(r *http.Request, first *url.URL) error) (*http.Client, error) {
	transport, err := newTransport(direct, credentials)
	if err != nil {
		return nil, err
	}
	if proxy != "" {
		u, err := url.Parse(proxy)
		if err != nil {
			return nil, permanent("spec.proxy: %w", err)
		}
		transport.Proxy = http.ProxyURL(u)
	}
	return &http.Client{Transport: transport, CheckRedirect: func(r *http.Request, via []*http.Request) error {
		switch first := via[0].URL; {
		case len(via) > maxRedirects:
			return errors.New("the server redirects too often")
		case r.Method != http.MethodGet:
			return errors.New("the server redirects the request for the pack")
		case first.Scheme == "https" && r.URL.Scheme != "https":
			return fmt.Errorf("the server redirects from https to %s", r.URL.Scheme)
		default:
			return allow(r, first)
		}
	}}, nil
}

// NewTransport returns a transport for requests that a source of a namespace causes. It reaches the same addresses as
// fetching does.
func NewTransport(namespace string, credentials map[string][]byte) (*http.Transport, error) {
	return newTransport(dialerOf(namespace), credentials)
}

// newTransport returns a transport with the proxy of the system block.
func newTransport(direct dialer, credentials map[string][]byte) (*http.Transport, error) {
	config, err := tlsConfig(credentials)
	if err != nil {
		return nil, err
	}
	return &http.Transport{
		Proxy: http.ProxyFromEnvironment, DialContext: direct.DialContext, TLSClientConfig: config,
		ForceAttemptHTTP2:   true,
		TLSHandshakeTimeout: 15 * time.Second, ResponseHeaderTimeout: headerTimeout,
		MaxResponseHeaderBytes: 64 << 10, MaxIdleConnsPerHost: 1,
	}, nil
}

// tlsConfig returns the settings of TLS. A CA of the Secret is trusted besides those of the machine.
func tlsConfig(credentials map[string][]byte) (*tls.Config, error) {
	config := &tls.Config{MinVersion: tls.VersionTLS12}
	if pem := credentials[keyCA]; pem != nil {
		pool, err := x509.SystemCertPool()
		if err != nil {
			pool = x509.NewCertPool()
		}
		if !pool.AppendCertsFromPEM(pem) {
			return nil, fmt.Errorf("the Secret's %s contains no certificate in PEM", keyCA)
		}
		config.RootCAs = pool
	}
	cert, key := credentials[keyClientCert], credentials[keyClientKey]
	if (cert == nil) != (key == nil) {
		return nil, fmt.Errorf("the Secret has only one of %s and %s", keyClientCert, keyClientKey)
	}
	if cert != nil {
		pair, err := tls.X509KeyPair(cert, key)
		if err != nil {
			return nil, fmt.Errorf("the Secret's %s and %s: %w", keyClientCert, keyClientKey, err)
		}
		config.Certificates = []tls.Certificate{pair}
	}
	return config, nil
}

// close closes idle connections.
func (h *httpSession) close() { h.client.CloseIdleConnections() }

// request sends a request below the repository's URL.
func (h *httpSession) request(ctx context.Context, method, path, query, contentType string,
	body io.Reader) (*http.Response, error) {
	u := *h.base
	u.Path = strings.TrimSuffix(u.Path, "/") + path
	u.RawQuery = query
	r, err := http.NewRequestWithContext(ctx, method, u.String(), body)
	if err != nil {
		return nil, err
	}
	r.Header.Set("User-Agent", userAgent)
	if contentType != "" {
		r.Header.Set("Content-Type", contentType)
	}
	h.authorize(r)
	answer, err := h.client.Do(r)
	if err != nil {
		var failed *url.Error
		if errors.As(err, &failed) { // its text repeats the URL
			return nil, failed.Err
		}
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		// A server may have moved the repository. The pack is requested where the references were.
		if method == http.MethodGet {
			moved := *answer.Request.URL
			moved.Path, moved.RawQuery = strings.TrimSuffix(moved.Path, path), ""
			h.base = &moved
		}
		return answer, nil
	}
	defer answer.Body.Close()
	return nil, h.refusal(answer)
}

// refusal describes an answer that is not a success.
func (h *httpSession) refusal(answer *http.Response) error {
	switch answer.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
		return fmt.Errorf("the server refuses the credentials (%s)", answer.Status)
	case http.StatusNotFound:
		return fmt.Errorf("the server has no such repository, or does not show it with these credentials (%s)",
			answer.Status)
	}
	text, _ := io.ReadAll(io.LimitReader(answer.Body, maxErrorBody)) // an error message is optional
	if !strings.HasPrefix(answer.Header.Get("Content-Type"), "text/plain") {
		return fmt.Errorf("the server answers %s", answer.Status)
	}
	return fmt.Errorf("the server answers %s: %s", answer.Status,
		strings.TrimSpace(strings.ToValidUTF8(string(text), "")))
}

// advertise implements session.
func (h *httpSession) advertise(ctx context.Context) (*packp.AdvRefs, error) {
	answer, err := h.request(ctx, http.MethodGet, "/info/refs", "service="+service, "", nil)
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if kind := answer.Header.Get("Content-Type"); kind != "application/x-"+service+"-advertisement" {
		return nil, fmt.Errorf("the server does not speak Git's smart protocol: its answer is %q", kind)
	}
	return decodeReferences(answer.Body)
}

// decodeReferences reads the list of references.
func decodeReferences(r io.Reader) (*packp.AdvRefs, error) {
	adv := packp.NewAdvRefs()
	err := adv.Decode(&limitedReader{r: r, left: maxRefBytes,
		err: fmt.Errorf("the list of references has more than %d bytes", maxRefBytes)})
	switch {
	case errors.Is(err, packp.ErrEmptyAdvRefs):
		return nil, errors.New("the repository has no commits")
	case err != nil:
		return nil, fmt.Errorf("read the references: %w", err)
	case len(adv.References) > maxRefs:
		return nil, fmt.Errorf("the repository has more than %d references", maxRefs)
	}
	return adv, nil
}

// upload implements session.
func (h *httpSession) upload(ctx context.Context, request *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	var body bytes.Buffer
	if err := encodeRequest(&body, request); err != nil {
		return nil, err
	}
	answer, err := h.request(ctx, http.MethodPost, "/"+service, "", "application/x-"+service+"-request", &body)
	if err != nil {
		return nil, err
	}
	return decodeResponse(answer.Body, request)
}

// encodeRequest writes a request for a pack.
func encodeRequest(w io.Writer, request *packp.UploadPackRequest) error {
	if err := request.UploadRequest.Encode(w); err != nil {
		return err
	}
	return pktline.NewEncoder(w).EncodeString("done\n")
}

// decodeResponse reads the answer up to the beginning of the pack. The response limits the size of the pack.
func decodeResponse(body io.ReadCloser, request *packp.UploadPackRequest) (*packp.UploadPackResponse, error) {
	limited := &limitedReader{r: body, left: maxResponseHeader,
		err: fmt.Errorf("the answer before the pack has more than %d bytes", maxResponseHeader)}
	response := packp.NewUploadPackResponse(request)
	if err := response.Decode(limitedBody{limited, body}); err != nil {
		_ = body.Close()
		return nil, fmt.Errorf("the server does not send the commit: %w", err)
	}
	limited.left, limited.err = maxPackBytes, fmt.Errorf("the pack has more than %d bytes", maxPackBytes)
	return response, nil
}

// limitedBody is a body of which a limited number of bytes is read.
type limitedBody struct {
	io.Reader
	io.Closer
}
