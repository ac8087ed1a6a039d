// The sign-in page: shows why the last attempt failed.

const reasons = {
  expired: 'The session has ended. Sign in again.',
  code: 'The link has expired or was used before. Run clusterctl dashboard again.',
  token: 'The API server did not accept the token.',
};

const reason = new URLSearchParams(location.search).get('problem');
if (reason) {
  const place = document.getElementById('problem');
  place.textContent = reasons[reason] ?? 'Signing in failed.';
  place.hidden = false;
}
