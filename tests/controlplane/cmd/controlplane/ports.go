package main

import (
	"errors"
	"fmt"
	"math/rand"
	"net"
)

// freePorts picks unused ports below the range that outgoing connections take theirs from. Each stays
// claimed as long as this process lives: the programs bind theirs only seconds later, and another
// control plane that starts meanwhile must not pick the same. The claim is a socket in Linux's
// abstract namespace: it is atomic, leaves no file, and ends with the process however that ends.
func freePorts(names ...string) (map[string]int, error) {
	out := map[string]int{}
	for tries := 0; tries < 2000 && len(out) < len(names); tries++ {
		port := 10000 + rand.Intn(20000)
		claim, err := net.Listen("unix", fmt.Sprintf("@controlplane-port-%d", port))
		if err != nil {
			continue
		}
		unused, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
		if err != nil {
			claim.Close()
			continue
		}
		unused.Close()
		claims = append(claims, claim)
		out[names[len(out)]] = port
	}
	if len(out) < len(names) {
		return nil, errors.New("no free ports")
	}
	return out, nil
}

var claims []net.Listener // held here, or the garbage collector would close them
