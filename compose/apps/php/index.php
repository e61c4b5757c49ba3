<?php
// A PHP application whose requests take CPU time.
declare(strict_types=1);

const MAX_CPU_MS = 1000;

function cpu_ms(): float
{
    $used = getrusage();
    return 1e3 * ($used['ru_utime.tv_sec'] + $used['ru_stime.tv_sec'])
        + 1e-3 * ($used['ru_utime.tv_usec'] + $used['ru_stime.tv_usec']);
}

header('Content-Type: text/plain');
switch (parse_url($_SERVER['REQUEST_URI'], PHP_URL_PATH)) {
    case '/work':
        $wanted = filter_input(INPUT_GET, 'cpu_ms', FILTER_VALIDATE_FLOAT);
        if (!($wanted > 0 && $wanted <= MAX_CPU_MS)) {
            http_response_code(400);
            exit('cpu_ms must be above 0, and at most ' . MAX_CPU_MS . "\n");
        }
        $end = cpu_ms() + $wanted;
        $digest = '';
        while (cpu_ms() < $end) {
            for ($i = 0; $i < 50; $i++) {
                $digest = hash('sha256', $digest, true);
            }
        }
        echo bin2hex($digest), "\n";
        break;
    case '/healthz':
        echo "ok\n";
        break;
    default:
        http_response_code(404);
        echo "not found\n";
}
