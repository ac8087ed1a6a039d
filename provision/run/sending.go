package run

import (
	"io"
	"os"
	"time"
)

// sendingInterval is how often it is reported how much of a file has been sent.
const sendingInterval = 5 * time.Second

// Sending is a file on its way to a machine. It reports how much has been read for it, every few seconds.
type Sending struct {
	io.ReadCloser
	Machine string
	Name    string
	Size    int64 // bytes that are sent, compressed; zero means not known
	Say     func(Event)
	Now     func() time.Time // nil means time.Now

	sent int64
	last time.Time // of a report, or the beginning
}

// Read reads from the file.
func (s *Sending) Read(b []byte) (int, error) {
	if s.Now == nil {
		s.Now = time.Now
	}
	if s.last.IsZero() {
		s.last = s.Now()
	}
	n, err := s.ReadCloser.Read(b)
	s.sent += int64(n)
	if now := s.Now(); s.Say != nil && now.Sub(s.last) >= sendingInterval {
		s.last = now
		s.Say(Event{Time: now, Kind: EventSending, Machine: s.Machine, Message: s.Name, Bytes: s.sent, Size: s.Size})
	}
	return n, err
}

// CompressedSize returns the length of a file that is open, zero when it is none.
func CompressedSize(content io.Reader) int64 {
	file, ok := content.(*os.File)
	if !ok {
		return 0
	}
	info, err := file.Stat()
	if err != nil {
		return 0
	}
	return info.Size()
}
