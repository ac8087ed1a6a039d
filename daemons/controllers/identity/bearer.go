package identity

import (
	"io"
	"net/http"
)

// bearer sends requests with an account's token. One that the API server refuses is replaced, and the request sent once
// more: a request whose sender is not known has done nothing.
type bearer struct {
	account *account
	to      http.RoundTripper
}

func (b *bearer) RoundTrip(r *http.Request) (*http.Response, error) {
	token, err := b.account.token(r.Context())
	if err != nil {
		if r.Body != nil {
			_ = r.Body.Close()
		}
		return nil, err
	}
	answer, err := b.to.RoundTrip(with(r, token, r.Body))
	if err != nil || answer.StatusCode != http.StatusUnauthorized {
		return answer, err
	}
	b.account.refused(token)
	body := r.Body
	if body != nil && body != http.NoBody {
		if r.GetBody == nil {
			return answer, nil
		}
		if body, err = r.GetBody(); err != nil {
			return answer, nil
		}
	}
	if token, err = b.account.token(r.Context()); err != nil {
		if body != nil {
			_ = body.Close()
		}
		return answer, nil // which says as much
	}
	_, _ = io.Copy(io.Discard, io.LimitReader(answer.Body, 64<<10))
	_ = answer.Body.Close()
	if answer, err = b.to.RoundTrip(with(r, token, body)); err == nil && answer.StatusCode == http.StatusUnauthorized {
		b.account.refused(token)
	}
	return answer, err
}

// with is a request with a token. The original stays as it is.
func with(r *http.Request, token string, body io.ReadCloser) *http.Request {
	r = r.Clone(r.Context())
	r.Header.Set("Authorization", "Bearer "+token)
	r.Body = body
	return r
}

// WrappedRoundTripper returns what is below, for what looks through transports.
func (b *bearer) WrappedRoundTripper() http.RoundTripper { return b.to }
